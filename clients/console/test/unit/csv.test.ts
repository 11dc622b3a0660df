import { expect, test } from "vitest";
import { csvOf } from "../../src/pages/csv.js";

test("what stands between commas is quoted where it must be, and nothing is a formula", () => {
  const rows = [
    ["plain", 'a "word"', "two\r\nlines"],
    ["=1+1", "+1", "-1"],
    ["@SUM(A1)", "\t=1", "a, b"],
  ];
  expect(csvOf(["x", "y", "z"], rows)).toBe(
    "\ufeffx,y,z\r\n" +
      'plain,"a ""word""","two\r\nlines"\r\n' +
      "'=1+1,'+1,'-1\r\n" +
      "'@SUM(A1),'\t=1,\"a, b\"\r\n",
  );
});
