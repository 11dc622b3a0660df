/**
 * The errors of the SDK, as one tree. Every message says what to do next.
 *
 *     ClientError
 *     ├── CannotConnect     the address does not answer, or is not a Parley server
 *     ├── BadToken          the token is not valid, or no longer valid: log in again
 *     ├── Closed            this client is closed, or the server forbids it to reconnect
 *     ├── RequestRefused    the server refused one request: code, reason, temporary
 *     ├── ReadElsewhere     two loops would share one cursor
 *     ├── OutboxFull        too much is waiting to be sent
 *     └── StoreUnusable     the store on this device is in use, belongs to another device, or cannot be written
 */

/** Why a request was not done. `code` is stable; `reason` is for people. */
export interface Refusal {
  readonly code: string;
  readonly reason: string;
  readonly temporary: boolean;
  readonly retryAfterMs?: number;
}

/** As a server writes it. */
interface Told {
  readonly code: string;
  readonly reason: string;
  readonly temporary: boolean;
  readonly retry_after_ms?: number;
}

export const refusalOf = ({ code, reason, temporary, retry_after_ms: retryAfterMs }: Told): Refusal => ({
  code,
  reason,
  temporary,
  ...(retryAfterMs !== undefined && { retryAfterMs }),
});

export const permanent = (code: string, reason: string): Refusal => ({ code, reason, temporary: false });

/** The root of everything that this SDK throws on purpose. */
export class ClientError extends Error {
  override name = "ClientError";
}

/** The address does not answer, or is not a Parley server. */
export class CannotConnect extends ClientError {
  override name = "CannotConnect";
}

/** The server does not accept the token. Queued messages stay queued. */
export class BadToken extends ClientError {
  override name = "BadToken";
}

/** This client has ended. `code` is the close code if the server ended it. */
export class Closed extends ClientError {
  override name = "Closed";
  readonly code: number | undefined;

  constructor(reason: string, code?: number) {
    super(reason);
    this.code = code;
  }
}

/** The server refused one request. `temporary` says whether the same request may work later. */
export class RequestRefused extends ClientError {
  override name = "RequestRefused";
  readonly refusal: Refusal;
  readonly code: string;
  readonly reason: string;
  readonly temporary: boolean;

  constructor(refusal: Refusal) {
    super(`${refusal.code}: ${refusal.reason}`);
    this.refusal = refusal;
    this.code = refusal.code;
    this.reason = refusal.reason;
    this.temporary = refusal.temporary;
  }
}

/** Another loop reads this chat, or all chats; a device has one cursor per chat. */
export class ReadElsewhere extends ClientError {
  override name = "ReadElsewhere";
}

/** Too much is waiting to be sent; wait for acknowledgements. */
export class OutboxFull extends ClientError {
  override name = "OutboxFull";
}

/** The store on this device is in use, belongs to another device, or cannot be written. */
export class StoreUnusable extends ClientError {
  override name = "StoreUnusable";
}
