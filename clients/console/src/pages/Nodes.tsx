import { Page } from "../parts/Page.js";
import { Empty } from "../parts/Shown.js";
import { s } from "../strings.en.js";

export default function Nodes() {
  return (
    <Page title={s.nodes}>
      <Empty>{s.placeholder}</Empty>
    </Page>
  );
}
