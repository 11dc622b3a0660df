/** The chat: what the address `/` is. */

import "parley-ui/tokens.css";
import "parley-ui/base.css";
import { render } from "preact";
import { isSignedIn, start } from "./app/state.js";
import { Frame } from "./pages/Frame.js";
import { Door } from "./pages/SignIn.js";

function Page() {
  if (isSignedIn.value === null) return null;
  return isSignedIn.value ? <Frame /> : <Door />;
}

const page = document.getElementById("page");
if (page) render(<Page />, page);
void start();
