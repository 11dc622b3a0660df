import { Page } from "../parts/Page.js";
import { Empty } from "../parts/Shown.js";
import { s } from "../strings.en.js";

export default function Webhooks() {
  return (
    <Page title={s.webhooks}>
      <Empty>{s.placeholder}</Empty>
    </Page>
  );
}
