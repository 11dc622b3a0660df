// Written by `make docs` from the contract in src/parley: change it there.

/** The server is shutting down; reconnect and resume. */
export const GOING_AWAY = 4000;

/** The client reads too slowly; reconnect and resume. */
export const TOO_SLOW = 4001;

/** The client was silent for too long; reconnect and resume. */
export const IDLE = 4002;

/** The server failed; reconnect and resume. */
export const INTERNAL = 4003;

/** No hello arrived in time. */
export const HELLO_TIMEOUT = 4100;

/** The token is not valid; log in again. */
export const UNAUTHENTICATED = 4101;

/** The session was revoked; log in again. */
export const REVOKED = 4102;

/** Too many frames; slow down. */
export const TOO_FAST = 4103;

/** This user has too many connections; close another one first. */
export const TOO_MANY_CONNECTIONS = 4104;

/** The token has expired; reconnect with a new one. */
export const TOKEN_EXPIRED = 4105;

/** A frame is one object with a type. */
export const NOT_A_FRAME = 4200;

/** The frame is larger than FRAME_BYTES_MAX. */
export const TOO_BIG = 1009;
