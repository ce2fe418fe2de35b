import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./styles/theme.css";
import "./styles/shell.css";
import "./styles/table.css";
import "./styles/rollout.css";
import "./styles/tokens.css";
import "./styles/pages.css";
import { App } from "./shell/app";
import { startTheme } from "./shell/theme";

startTheme();
const root = document.getElementById("app");
if (root) render(<App />, root);
