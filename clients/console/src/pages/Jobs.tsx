import { Page } from "../parts/Page.js";
import { Empty } from "../parts/Shown.js";
import { s } from "../strings.en.js";

export default function Jobs() {
  return (
    <Page title={s.jobs}>
      <Empty>{s.placeholder}</Empty>
    </Page>
  );
}
