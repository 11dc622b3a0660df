/** The console: what the address `/console` is. */

import "parley-ui/tokens.css";
import "parley-ui/base.css";
import { render } from "preact";
import { operator } from "./app/session.js";
import { Door } from "./parts/Door.js";
import { Frame } from "./parts/Frame.js";

function Console() {
  return operator.value ? <Frame /> : <Door />;
}

const page = document.getElementById("page");
if (page) render(<Console />, page);
