import { render } from "preact";
import "./styles/theme.css";
import "./styles/shell.css";
import "./styles/table.css";
import "./styles/rollout.css";
import "./styles/tokens.css";
import "./styles/run.css";
import "./styles/pages.css";
import { readExported } from "./api/fetch_json";
import { App } from "./shell/app";

const root = document.getElementById("app");
if (root) {
  readExported().then(
    () => render(<App />, root),
    () => render(<p class="notice">This file is not whole, or the browser is older than 2023.</p>, root),
  );
}
