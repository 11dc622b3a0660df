/** What a person does before there is a token. */

import { Http } from "./http.js";
import { type Platform, thisPlatform } from "./platform.js";

const DEVICE_ID_DEFAULT = "typescript-sdk";

export interface LoginOptions {
  readonly deviceId?: string;
  readonly deviceName?: string;
  readonly platform?: Platform;
}

/** Create an account; `invite` is the token of an invitation link. Resolves to its user id. */
export async function register(
  url: string,
  username: string,
  password: string,
  { invite, platform = thisPlatform() }: { invite?: string; platform?: Platform } = {},
): Promise<string> {
  const body = { username, password, ...(invite && { invite }) };
  return (await new Http(url, platform, null).call("POST /v1/accounts", { body })).user_id;
}

/** Create a session for a device. Resolves to its token, for `connect`. */
export async function login(
  url: string,
  username: string,
  password: string,
  { deviceId = DEVICE_ID_DEFAULT, deviceName, platform = thisPlatform() }: LoginOptions = {},
): Promise<string> {
  const body = { username, password, device_id: deviceId, ...(deviceName && { device_name: deviceName }) };
  return (await new Http(url, platform, null).call("POST /v1/sessions", { body })).token;
}

/** Set a new password with the token of a link that an operator made. */
export async function resetPassword(
  url: string,
  token: string,
  newPassword: string,
  { platform = thisPlatform() }: { platform?: Platform } = {},
): Promise<void> {
  const body = { token, new_password: newPassword };
  await new Http(url, platform, null).call("POST /v1/password-reset", { body });
}
