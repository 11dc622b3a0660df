/** What people, chats and devices are called. */

const INVISIBLE = /[\p{Cc}\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]/gu;
const MANY_MARKS = /(\p{M}{3})\p{M}+/gu;

/** A name without what turns the letters around it, hides, or towers over them. */
export function plainName(name: string): string {
  return name.replace(INVISIBLE, "").replace(MANY_MARKS, "$1").trim();
}
