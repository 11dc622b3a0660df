import { Page } from "../parts/Page.js";
import { Empty } from "../parts/Shown.js";
import { s } from "../strings.en.js";

export default function Push() {
  return (
    <Page title={s.push}>
      <Empty>{s.placeholder}</Empty>
    </Page>
  );
}
