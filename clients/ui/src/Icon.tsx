/** Icons as strokes of 24 × 24, in the colour of the text. */

const PATHS = {
  send: "M4 12 20 4l-5 16-3.5-6.5zM11.5 13.5 20 4",
  attach: "m20 11-8.5 8.5a5 5 0 0 1-7-7L13 4a3.3 3.3 0 0 1 4.7 4.7L9.3 17a1.7 1.7 0 0 1-2.4-2.4L14.5 7",
  emoji: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM8.5 14.5a4.5 4.5 0 0 0 7 0M9 9.5v.2M15 9.5v.2",
  plus: "M12 5v14M5 12h14",
  compose:
    "M12 5H6a2 2 0 0 0-2 2v11a2 2 0 0 0 2 2h11a2 2 0 0 0 2-2v-6M17.5 3.8a1.9 1.9 0 0 1 2.7 2.7L12 14.7 8.5 15.5l.8-3.5z",
  search: "M10.5 17a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM15.5 15.5 20 20",
  back: "M14.5 5.5 8 12l6.5 6.5",
  down: "m6 9.5 6 6 6-6",
  close: "m6 6 12 12M18 6 6 18",
  more: "M5.5 12v.1M12 12v.1M18.5 12v.1",
  info: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 11v5M12 8v.1",
  reply: "M9.5 6 4 11.5 9.5 17M4.5 11.5H14a6 6 0 0 1 6 6V19",
  edit: "M16.2 4.6a2 2 0 0 1 2.8 0l.4.4a2 2 0 0 1 0 2.8L9 18.2 4.5 19.5 5.8 15z",
  trash: "M5 7h14M10 7V4.5h4V7M7 7l.8 12.5h8.4L17 7M10.3 10.5v5.5M13.7 10.5v5.5",
  copy: "M9 9h10v11H9zM5 15V4h10",
  link: "M10 14a4 4 0 0 0 6 .4l3-3a4.2 4.2 0 0 0-6-6l-1.2 1.2M14 10a4 4 0 0 0-6-.4l-3 3a4.2 4.2 0 0 0 6 6l1.2-1.2",
  flag: "M6 21V4h11l-2 4 2 4H6",
  settings:
    "M4 7h10M18 7h2M4 17h2M10 17h10M16 9a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM8 19a2 2 0 1 0 0-4 2 2 0 0 0 0 4z",
  bell: "M6.5 16.5V11a5.5 5.5 0 0 1 11 0v5.5l1.5 1.5H5zM10 20.5h4",
  bellOff: "M6.5 16.5V11c0-1 .3-2 .8-2.8M9.5 6a5.5 5.5 0 0 1 8 5v5.5M5 18h13M10 20.5h4M4 4l16 16",
  person: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4.5 20a7.5 7.5 0 0 1 15 0",
  people:
    "M9 11.5a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM2.5 19.5a6.5 6.5 0 0 1 13 0M16 4.8a3.5 3.5 0 0 1 0 6.4M18 14a6.5 6.5 0 0 1 3.5 5.5",
  addPerson: "M10 11.5a3.8 3.8 0 1 0 0-7.5 3.8 3.8 0 0 0 0 7.5zM3 20a7 7 0 0 1 12-4.8M18 14v6M15 17h6",
  leave: "M14 4H6v16h8M11 12h10M17.5 8.5 21 12l-3.5 3.5",
  file: "M7 3.5h7l4.5 4.5V20.5H7zM13.5 3.5V8.5h5",
  download: "M12 4v11M7 10.5l5 5 5-5M5 20h14",
  image: "M4 5h16v14H4zM4 16l4.5-4.5 4 4 3-3L20 17M9 9.5v.1",
  shield: "M12 3.5 5 6v5.5c0 4.5 3 7.5 7 9 4-1.5 7-4.5 7-9V6zM9 12l2.2 2.2L15.2 10",
  mail: "M4 6h16v12H4zM4 7l8 6.5L20 7",
  calendar: "M5 6h14v14H5zM5 10h14M9 3.5V7M15 3.5V7",
  eye: "M2.5 12S6 5.5 12 5.5 21.5 12 21.5 12 18 18.5 12 18.5 2.5 12 2.5 12zM12 15a3 3 0 1 0 0-6 3 3 0 0 0 0 6z",
  eyeOff:
    "M4 4l16 16M9.5 5.9A9.3 9.3 0 0 1 12 5.5c6 0 9.5 6.5 9.5 6.5a16 16 0 0 1-2.6 3.3M6.3 7.6A15.5 15.5 0 0 0 2.5 12S6 18.5 12 18.5c1.5 0 2.9-.4 4.1-1",
  retry: "M19.5 12a7.5 7.5 0 1 1-2.2-5.3L20 9.5M20 4.5v5h-5",
  warning: "M12 4 2.5 20h19zM12 10v4.5M12 17.2v.1",
  clock: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5.2l3.5 2",
  tick: "m5 12.5 4.5 4.5L19 7.5",
  ticks: "m2 12.5 4.5 4.5L16 7.5M10.5 16l1 1L22 7.5",
  at: "M12 15.5a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM15.5 8.5v4.7a2.5 2.5 0 0 0 5 .3V12a8.5 8.5 0 1 0-3.5 6.9",
  keyboard: "M3 7h18v10H3zM6.5 10.5v.1M10 10.5v.1M14 10.5v.1M17.5 10.5v.1M8 14h8",
  block: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM5.8 5.8l12.4 12.4",
  cloudOff: "M4 4l16 16M8 8.5A5.5 5.5 0 0 0 7 18.5h10M10 6.8a5.5 5.5 0 0 1 7.7 4.7 3.6 3.6 0 0 1 2.3 5.5",
  devices: "M4 6h12v9H4zM2.5 18.5h11M16 10h5v9h-5z",
} as const;

export type IconName = keyof typeof PATHS;

/** Purely decoration: what it stands beside has a name. */
export function Icon({ name, size = 20 }: { name: IconName; size?: number }) {
  return (
    <svg
      width={size}
      height={size}
      viewBox="0 0 24 24"
      fill="none"
      stroke="currentColor"
      stroke-width="1.8"
      stroke-linecap="round"
      stroke-linejoin="round"
      aria-hidden="true"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}
