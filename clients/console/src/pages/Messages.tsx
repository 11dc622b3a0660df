import { Page } from "../parts/Page.js";
import { Empty } from "../parts/Shown.js";
import { s } from "../strings.en.js";

export default function Messages() {
  return (
    <Page title={s.messages}>
      <Empty>{s.placeholder}</Empty>
    </Page>
  );
}
