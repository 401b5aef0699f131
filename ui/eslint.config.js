import reactPlugin from "eslint-plugin-react";
import hooks from "eslint-plugin-react-hooks";
import tseslint from "typescript-eslint";

/** What would make text of a task into markup, or a script of it. */
const MARKUP = ["innerHTML", "outerHTML", "insertAdjacentHTML", "dangerouslySetInnerHTML", "srcdoc"];

export default tseslint.config(
  { ignores: ["node_modules", "src/api/schema.ts"] },
  ...tseslint.configs.recommended,
  hooks.configs.flat.recommended,
  {
    files: ["src/**/*.{ts,tsx}"],
    plugins: { react: reactPlugin },
    settings: { react: { version: "19" } },
    rules: {
      "react/no-danger": "error",
      "react/jsx-no-target-blank": "error",
      "react/jsx-no-script-url": "error",
      "react/jsx-key": "error",
      // It concerns the compiler of React, which is not used.
      "react-hooks/incompatible-library": "off",
      "no-eval": "error",
      "no-implied-eval": "error",
      "@typescript-eslint/no-explicit-any": "error",
      "no-restricted-syntax": [
        "error",
        ...MARKUP.map((name) => ({
          selector: `MemberExpression[property.name='${name}'], Property[key.name='${name}'], JSXAttribute[name.name='${name}']`,
          message: `${name} makes text into markup: text of tasks is rendered as text`,
        })),
        { selector: "CallExpression[callee.object.name='document'][callee.property.name='write']", message: "renders markup" },
      ],
      "no-restricted-globals": [
        "error",
        { name: "localStorage", message: "only lib/settings.ts keeps anything in the browser, and never a secret" },
        { name: "sessionStorage", message: "nothing is kept there" },
      ],
    },
  },
);
