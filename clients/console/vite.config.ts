import { defineConfig } from "vite";
import { shared } from "../ui/vite.js";

export default defineConfig(shared);
