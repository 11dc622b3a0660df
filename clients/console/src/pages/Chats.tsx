import { Page } from "../parts/Page.js";
import { Empty } from "../parts/Shown.js";
import { s } from "../strings.en.js";

export default function Chats() {
  return (
    <Page title={s.chats}>
      <Empty>{s.placeholder}</Empty>
    </Page>
  );
}
