/** Times as people read them. */

import { s } from "./strings.en.js";

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const clockSeconds = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
});
const weekday = new Intl.DateTimeFormat(undefined, { weekday: "short" });
const shortDate = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const shortYear = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });
const longDate = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });
const longYear = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "long", year: "numeric" });
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

const DAY_MS = 86_400_000;
const WEEK_DAYS = 7;

const dayOf = (at: Date) => new Date(at.getFullYear(), at.getMonth(), at.getDate()).getTime();

function daysAgo(at: Date, now: Date): number {
  return Math.round((dayOf(now) - dayOf(at)) / DAY_MS);
}

export const clockTime = (at: number) => clock.format(at);
export const clockTimeSeconds = (at: number) => clockSeconds.format(at);
export const wholeTime = (at: number) => whole.format(at);

/** One day of the person's own calendar, to compare. */
export const dayKey = (at: number) => dayOf(new Date(at));

/** In a list: the time of today, a weekday of this week, else the date. */
export function listTime(at: number, now = Date.now()): string {
  const [when, today] = [new Date(at), new Date(now)];
  const days = daysAgo(when, today);
  if (days <= 0) return clock.format(when);
  if (days === 1) return s.yesterday;
  if (days < WEEK_DAYS) return weekday.format(when);
  return (when.getFullYear() === today.getFullYear() ? shortDate : shortYear).format(when);
}

/** Between the messages of two days. */
export function dayTitle(at: number, now = Date.now()): string {
  const [when, today] = [new Date(at), new Date(now)];
  const days = daysAgo(when, today);
  if (days === 0) return s.today;
  if (days === 1) return s.yesterday;
  return (when.getFullYear() === today.getFullYear() ? longDate : longYear).format(when);
}
