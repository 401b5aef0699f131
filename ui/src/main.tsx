import { createRoot } from "react-dom/client";
import { App } from "./app";
import { applyTheme, isTheme, readSetting } from "./lib/settings";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/components.css";

applyTheme(readSetting("theme", "system", isTheme));
const root = document.getElementById("root");
if (root !== null) {
  createRoot(root).render(<App />);
}
