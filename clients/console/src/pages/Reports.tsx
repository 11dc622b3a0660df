import { Page } from "../parts/Page.js";
import { Empty } from "../parts/Shown.js";
import { s } from "../strings.en.js";

export default function Reports() {
  return (
    <Page title={s.reports}>
      <Empty>{s.placeholder}</Empty>
    </Page>
  );
}
