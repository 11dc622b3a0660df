/** Devices that ring while none of the person's is connected. */

import type { Client } from "./client.js";
import type { NewPushDevice, PushDeviceInfo, PushSubscription } from "./contract.js";

/** The person's devices that ring. */
export function pushOf(client: Client): Push {
  return new Push(client);
}

export class Push {
  readonly #client: Client;

  /** @internal */
  constructor(client: Client) {
    this.#client = client;
  }

  /** Every one, without its token. */
  async all(): Promise<readonly PushDeviceInfo[]> {
    return (await this.#client.http.call("GET /v1/me/push")).devices;
  }

  /** Let a device ring. `secret` is there once, for a webhook with a new address. */
  register(device: NewPushDevice, deviceId = this.#client.deviceId): Promise<PushDeviceInfo> {
    return this.#client.http.call("PUT /v1/me/push/{device_id}", {
      path: { device_id: deviceId },
      body: device,
    });
  }

  /** Let this browser ring, by the service worker of the page; the person is asked. */
  async registerBrowser(
    worker: ServiceWorkerRegistration,
    { preview = false } = {},
  ): Promise<PushDeviceInfo> {
    const { public_key } = await this.#client.http.call("GET /v1/push/vapid");
    const subscribed = await worker.pushManager.subscribe({
      userVisibleOnly: true,
      applicationServerKey: public_key,
    });
    const subscription = subscribed.toJSON() as unknown as PushSubscription;
    return this.register({ provider: "webpush", subscription, preview });
  }

  /** Let a device not ring any more. */
  async remove(deviceId = this.#client.deviceId): Promise<void> {
    await this.#client.http.call("DELETE /v1/me/push/{device_id}", { path: { device_id: deviceId } });
  }
}
