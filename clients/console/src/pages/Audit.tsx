import { Page } from "../parts/Page.js";
import { Empty } from "../parts/Shown.js";
import { s } from "../strings.en.js";

export default function Audit() {
  return (
    <Page title={s.audit}>
      <Empty>{s.placeholder}</Empty>
    </Page>
  );
}
