/** A table. On a narrow screen each row is a card, and each cell says what it is. */

import { Icon } from "parley-ui/Icon.js";
import type { ComponentChildren } from "preact";
import { s } from "../strings.en.js";
import c from "./Table.module.css";

export interface Column<Row> {
  readonly name: string;
  readonly cell: (row: Row) => ComponentChildren;
  /** Numbers stand at the end of their column. */
  readonly isNumber?: boolean;
  /** What the row is called. The first column is, unless another one says so. */
  readonly isHead?: boolean;
  /** Short words that are not to be broken. */
  readonly isWhole?: boolean;
  /** The heading is for screen readers alone: of a column of buttons. */
  readonly isUnnamed?: boolean;
}

type TableProps<Row> = {
  name: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf: (row: Row) => string | number;
  /** Whether a row is the one that is shown beside the table. */
  isChosen?: (row: Row) => boolean;
};

// Cards are blocks, and a table that is a block is none to a screen reader unless it says so.
const TABLE = { role: "table" } as object;
const GROUP = { role: "rowgroup" } as object;
const ROW = { role: "row" } as object;
const COLUMN = { role: "columnheader" } as object;
const HEAD = { role: "rowheader" } as object;
const CELL = { role: "cell" } as object;

export function Table<Row>({ name, columns, rows, keyOf, isChosen }: TableProps<Row>) {
  const head = Math.max(
    0,
    columns.findIndex(({ isHead }) => isHead),
  );
  return (
    <div class={c.frame}>
      <table {...TABLE} class={c.table} aria-label={name}>
        <thead {...GROUP}>
          <tr {...ROW}>
            {columns.map((column) => (
              <th {...COLUMN} key={column.name} scope="col" class={column.isNumber ? c.number : ""}>
                <span class={column.isUnnamed ? "sr" : ""}>{column.name}</span>
              </th>
            ))}
          </tr>
        </thead>
        <tbody {...GROUP}>
          {rows.map((row) => (
            <tr {...ROW} key={keyOf(row)} class={isChosen?.(row) ? c.chosen : ""}>
              {columns.map((column, at) => {
                const looks = [
                  column.isNumber && c.number,
                  column.isWhole && c.whole,
                  column.isUnnamed && c.unnamed,
                ];
                const look = looks.filter(Boolean).join(" ");
                return at === head ? (
                  <th {...HEAD} key={column.name} scope="row" class={`${c.head} ${look}`}>
                    {column.cell(row)}
                  </th>
                ) : (
                  <td {...CELL} key={column.name} class={look} data-name={column.name}>
                    {column.cell(row)}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Below a table that has further rows. */
export function More({ onMore, isBusy = false }: { onMore: () => void; isBusy?: boolean }) {
  return (
    <button type="button" class={c.more} onClick={onMore} disabled={isBusy}>
      <Icon name="down" size={18} />
      {isBusy ? s.loading : s.more}
    </button>
  );
}
