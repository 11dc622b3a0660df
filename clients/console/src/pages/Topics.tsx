import { Page } from "../parts/Page.js";
import { Empty } from "../parts/Shown.js";
import { s } from "../strings.en.js";

export default function Topics() {
  return (
    <Page title={s.topics}>
      <Empty>{s.placeholder}</Empty>
    </Page>
  );
}
