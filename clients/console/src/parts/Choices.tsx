/** Several of a few, each with a box. */

import type { Signal } from "@preact/signals";
import c from "./Choices.module.css";

export function Choices({
  label,
  all,
  chosen,
  areLong = false,
}: {
  label: string;
  all: readonly (readonly [value: string, name: string])[];
  chosen: Signal<ReadonlySet<string>>;
  /** Their names are sentences: each has a line of its own. */
  areLong?: boolean;
}) {
  return (
    <fieldset class={`${c.choices} ${areLong ? c.long : ""}`}>
      <legend>{label}</legend>
      {all.map(([value, name]) => (
        <label key={value}>
          <input
            type="checkbox"
            checked={chosen.value.has(value)}
            onChange={() => {
              const next = new Set(chosen.value);
              if (!next.delete(value)) next.add(value);
              chosen.value = next;
            }}
          />
          {name}
        </label>
      ))}
    </fieldset>
  );
}
