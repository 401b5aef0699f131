/// <reference types="vitest/config" />
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// Where `npm run dev` finds a server: start one with `taskyard up`.
const server = "http://127.0.0.1:8420";

export default defineConfig({
  plugins: [react()],
  build: {
    outDir: "../src/taskyard/server/page",
    emptyOutDir: true,
    target: "es2022",
    // The policy of the page allows no data: addresses, so nothing is put into other files.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 700,
  },
  server: { proxy: { "/api": server } },
  test: { environment: "jsdom", include: ["src/**/*.test.{ts,tsx}"] },
});
