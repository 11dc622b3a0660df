import { Page } from "../parts/Page.js";
import { Empty } from "../parts/Shown.js";
import { s } from "../strings.en.js";

export default function DeadLetters() {
  return (
    <Page title={s.deadLetters}>
      <Empty>{s.placeholder}</Empty>
    </Page>
  );
}
