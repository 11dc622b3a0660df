/** One number with its name, and the line of its last hour. */

import { useId } from "preact/hooks";
import { s } from "../strings.en.js";
import c from "./Figure.module.css";

type FigureProps = {
  name: string;
  /** Null: nobody can say now. */
  value: number | null;
  /** How the number is written. */
  say: (value: number) => string;
  /** The hour before, the oldest first. */
  line?: readonly number[] | undefined;
  href?: string;
  /** `warn`: somebody should look at it. Its words say so as well. */
  look?: "warn" | undefined;
  hint?: string | undefined;
};

export function Figure({ name, value, say, line, href, look, hint }: FigureProps) {
  const id = useId();
  const told = value === null ? s.unknown : say(value);
  return (
    <figure
      class={`${c.figure} ${look ? c[look] : ""}`}
      aria-labelledby={id}
      data-value={value === null ? "" : String(value)}
    >
      <figcaption id={id}>{href ? <a href={href}>{name}</a> : name}</figcaption>
      <span class={c.value}>{told}</span>
      {hint && <span class={c.hint}>{hint}</span>}
      {line && line.length > 1 && <Line points={line} />}
    </figure>
  );
}

const WIDTH = 240;
const HEIGHT = 36;

/** A line of the numbers, from 0 to the highest. The numbers are also in a table: it is decoration to a reader. */
function Line({ points }: { points: readonly number[] }) {
  const most = Math.max(...points, Number.MIN_VALUE);
  const step = WIDTH / (points.length - 1);
  const places = points.map(
    (point, at) => `${(at * step).toFixed(1)},${(HEIGHT - 1 - (point / most) * (HEIGHT - 3)).toFixed(1)}`,
  );
  return (
    <svg class={c.line} viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
      <polygon points={`0,${HEIGHT} ${places.join(" ")} ${WIDTH},${HEIGHT}`} />
      <polyline points={places.join(" ")} />
    </svg>
  );
}
