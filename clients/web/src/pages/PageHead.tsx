/** The header of a page that is no conversation. */

import controls from "parley-ui/controls.module.css";
import { Icon } from "parley-ui/Icon.js";
import { hrefOf } from "../app/route.js";
import { s } from "../strings.en.js";
import c from "./ConversationPage.module.css";

export function PageHead({ title }: { title: string }) {
  return (
    <header class={c.header}>
      <a class={`${controls.icon} ${c.back}`} href={hrefOf.chats()} aria-label={s.back} title={s.back}>
        <Icon name="back" />
      </a>
      <div class={c.titles}>
        <h1>{title}</h1>
      </div>
    </header>
  );
}
