import { Page } from "../parts/Page.js";
import { Empty } from "../parts/Shown.js";
import { s } from "../strings.en.js";

export default function Programs() {
  return (
    <Page title={s.programs}>
      <Empty>{s.placeholder}</Empty>
    </Page>
  );
}
