/** The service worker: the shell without the network, and notifications. Its address is the only one that may be made a script. */

interface Policy {
  createScriptURL(address: string): unknown;
}

interface Factory {
  createPolicy(name: string, rules: { createScriptURL(address: string): string }): Policy;
}

const ADDRESS = "/sw.js";

let policy: Policy | null = null;

function trusted(address: string): string {
  const factory = (globalThis as { trustedTypes?: Factory }).trustedTypes;
  if (!factory) return address;
  policy ??= factory.createPolicy("parley", {
    createScriptURL: (wanted) => {
      if (wanted !== ADDRESS) throw new TypeError("this is no script of Parley");
      return wanted;
    },
  });
  return policy.createScriptURL(address) as string;
}

/** Registered once; null where pages have none, as on plain http. */
export async function worker(): Promise<ServiceWorkerRegistration | null> {
  if (!("serviceWorker" in navigator)) return null;
  return navigator.serviceWorker.register(trusted(ADDRESS), { scope: "/", updateViaCache: "none" });
}
