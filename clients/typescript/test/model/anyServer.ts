/** The model server of a scenario: the one in TypeScript, or Python's where the environment says how to start it. */

import { afterAll } from "vitest";
import { COMMAND, endPython, PythonServer } from "./pythonServer.js";
import { ModelServer } from "./server.js";

afterAll(endPython);

export const newServer = (): ModelServer => (COMMAND ? new PythonServer() : new ModelServer());
