import { Page } from "../parts/Page.js";
import { Empty } from "../parts/Shown.js";
import { s } from "../strings.en.js";

export default function People() {
  return (
    <Page title={s.people}>
      <Empty>{s.placeholder}</Empty>
    </Page>
  );
}
