import { Page } from "../parts/Page.js";
import { Empty } from "../parts/Shown.js";
import { s } from "../strings.en.js";

export default function Links() {
  return (
    <Page title={s.links}>
      <Empty>{s.placeholder}</Empty>
    </Page>
  );
}
