import { render } from "preact";
import { App } from "./app";
import "./style/theme.css";
import "./style/layout.css";
import "./style/views.css";

const root = document.getElementById("app");
if (root) render(<App />, root);
