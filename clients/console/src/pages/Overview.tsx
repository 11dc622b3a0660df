import { Page } from "../parts/Page.js";
import { Empty } from "../parts/Shown.js";
import { s } from "../strings.en.js";

export default function Overview() {
  return (
    <Page title={s.overview}>
      <Empty>{s.placeholder}</Empty>
    </Page>
  );
}
