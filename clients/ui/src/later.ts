/** Parts of the page that are loaded when they are first wanted. */

import { useSignal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";

/** The default of a chunk; null until it is there, or while none is wanted. */
export function useLater<Props>(
  load: (() => Promise<{ default: ComponentType<Props> }>) | null,
): ComponentType<Props> | null {
  const loaded = useSignal<ComponentType<Props> | null>(null);
  useEffect(() => {
    if (!load) return;
    load().then(
      (chunk) => {
        loaded.value = chunk.default;
      },
      () => {},
    );
  }, [load]);
  return load ? loaded.value : null;
}
