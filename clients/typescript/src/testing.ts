/** For the tests of applications: a server in the same process. */

export type { Platform } from "./platform.js";
export { thisPlatform } from "./platform.js";
export type { ChatLog } from "./testing/chatLog.js";
export { VirtualServer, type VirtualServerOptions } from "./testing/virtualServer.js";
