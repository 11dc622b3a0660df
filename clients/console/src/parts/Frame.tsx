/** Who is signed in, where one can go, and the page of the address. */

import { chooseTheme, theme } from "parley-ui/appearance.js";
import { IconButton, Select } from "parley-ui/controls.js";
import { useLater } from "parley-ui/later.js";
import { useEffect, useRef } from "preact/hooks";
import { passwordWish } from "../app/api.js";
import { overview } from "../app/overview.js";
import { hrefOf, place } from "../app/route.js";
import { isOver, operator, signOut } from "../app/session.js";
import { PAGES, type PageEntry, pageOf } from "../pages/index.js";
import { number, s } from "../strings.en.js";
import { PasswordDialog, SessionOver } from "./Door.js";
import c from "./Frame.module.css";
import { Page } from "./Page.js";
import { Tag } from "./parts.js";
import { Loading } from "./Shown.js";

export function Frame() {
  useEffect(() => overview.start(), []);
  const entry = pageOf(place.value.name);
  const main = useRef<HTMLElement>(null);
  const isFirst = useRef(true);
  useEffect(() => {
    main.current?.scrollTo(0, 0);
    // Whoever followed a link reads on in the page; the first page is read from its beginning.
    if (!isFirst.current) main.current?.focus();
    isFirst.current = false;
  }, [place.value.name, place.value.id]);
  return (
    <div class={c.frame}>
      <a
        class={c.skip}
        href={location.hash || "#/"}
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        {s.skip}
      </a>
      <div class={c.side}>
        <div class={c.brand}>
          <img src="/assets/console.svg" alt="" width="32" height="32" />
          <span>{s.product}</span>
        </div>
        <nav class={c.pages} aria-label={s.console}>
          {PAGES.map((one) => (
            <PageLink key={one.title} entry={one} isHere={one === entry} />
          ))}
        </nav>
        <Foot />
      </div>
      <main class={c.main} ref={main} tabIndex={-1}>
        {entry ? <OnePage key={entry.title} entry={entry} /> : <Nowhere />}
      </main>
      {passwordWish.value && <PasswordDialog wish={passwordWish.value} />}
      {isOver.value && <SessionOver />}
    </div>
  );
}

function PageLink({ entry, isHere }: { entry: PageEntry; isHere: boolean }) {
  const waiting = waitingFor(entry.names[0]);
  const link = useRef<HTMLAnchorElement>(null);
  useEffect(() => {
    // On a narrow screen the links are one row, which is longer than the screen.
    const [here, row] = [link.current, link.current?.parentElement];
    // By hand: scrollIntoView also decides where the next Tab goes.
    if (isHere && here && row) row.scrollLeft = here.offsetLeft - (row.clientWidth - here.offsetWidth) / 2;
  }, [isHere]);
  return (
    <a ref={link} href={hrefOf(entry.names[0])} aria-current={isHere ? "page" : undefined}>
      {entry.title}
      {/* The number is drawn by the style: a name is what is written in a link. */}
      {waiting > 0 && <span class={c.waiting} aria-hidden="true" data-count={number(waiting)} />}
    </a>
  );
}

/** How much of a page waits for somebody. Overview says it in words. */
function waitingFor(name: string): number {
  const seen = overview.value.value;
  if (name === "dlq") return seen?.dead_letters ?? 0;
  if (name === "reports") return seen?.open_reports ?? 0;
  if (name === "jobs") return (seen?.jobs_failing ?? 0) + (seen?.jobs_overdue ?? 0);
  return 0;
}

function Foot() {
  return (
    <div class={c.foot}>
      <Select label={s.theme} value={theme.value} options={s.themes} onChange={chooseTheme} />
      <div class={c.who}>
        <span class={c.name}>
          <span class="sr">{s.signedInAs("")}</span>
          {operator.value?.username}
        </span>
        {operator.value?.isReadOnly && <Tag look="warn">{s.readOnly}</Tag>}
        <IconButton icon="leave" name={s.signOut} onClick={() => void signOut()} />
      </div>
    </div>
  );
}

/** Its code is loaded when it is first wanted. */
function OnePage({ entry }: { entry: PageEntry }) {
  const Shown = useLater(entry.load);
  if (Shown) return <Shown />;
  return (
    <Page title={entry.title}>
      <Loading />
    </Page>
  );
}

function Nowhere() {
  return (
    <Page title={s.noSuchPage}>
      <p>
        <a href={hrefOf("")}>{s.overview}</a>
      </p>
    </Page>
  );
}
