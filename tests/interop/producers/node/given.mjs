// The records that a program is given: keys and texts.
import { readFileSync } from "node:fs";

export const records = readFileSync(0, "utf8").trim().split("\n").map((line) => JSON.parse(line));
