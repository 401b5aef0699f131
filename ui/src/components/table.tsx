/** Tables: columns, sorting, rows that open something, and only the rows in view when there are many. */

import {
  type ColumnDef,
  flexRender,
  getCoreRowModel,
  getSortedRowModel,
  type Row,
  type SortingState,
  useReactTable,
} from "@tanstack/react-table";
import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, type ReactNode, useRef, useState } from "react";
import { useLocation } from "wouter";

/** Longer tables draw only what is in view. */
const WHOLE_MAX = 100;
const ROW_HEIGHT = 41;

export type Columns<T> = ColumnDef<T>[];

interface TableProps<T> {
  rows: T[];
  columns: Columns<T>;
  label: string;
  /** Where a row leads. */
  href?: (row: T) => string;
  onOpen?: (row: T) => void;
  chosen?: (row: T) => boolean;
  rowId: (row: T) => string;
  empty?: ReactNode;
  sorting?: SortingState;
}

export function Table<T>({ rows, columns, label, href, onOpen, chosen, rowId, empty, sorting: first = [] }: TableProps<T>) {
  const [sorting, setSorting] = useState<SortingState>(first);
  const [, navigate] = useLocation();
  const scroller = useRef<HTMLDivElement>(null);
  const table = useReactTable({
    data: rows,
    columns,
    state: { sorting },
    onSortingChange: setSorting,
    getCoreRowModel: getCoreRowModel(),
    getSortedRowModel: getSortedRowModel(),
    getRowId: rowId,
    sortDescFirst: false,
  });
  const shown = table.getRowModel().rows;
  const isLong = shown.length > WHOLE_MAX;
  const virtual = useVirtualizer({
    count: isLong ? shown.length : 0,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_HEIGHT,
    overscan: 12,
  });
  if (rows.length === 0 && empty !== undefined) {
    return empty;
  }
  const open = (row: T) => (onOpen === undefined ? href !== undefined && navigate(href(row)) : onOpen(row));
  const items = virtual.getVirtualItems();
  const before = items[0]?.start ?? 0;
  const after = isLong ? virtual.getTotalSize() - (items.at(-1)?.end ?? 0) : 0;
  const body = (isLong ? items.map((item) => shown[item.index]) : shown).filter((row) => row !== undefined);
  const can = href !== undefined || onOpen !== undefined;
  return (
    <div ref={scroller} className={isLong ? "virtual" : "table-wrap"} tabIndex={isLong ? 0 : undefined} role="region" aria-label={label}>
      <table className="table" aria-rowcount={shown.length}>
        <caption className="hidden-text">{label}</caption>
        <thead>
          {table.getHeaderGroups().map((group) => (
            <tr key={group.id}>
              {group.headers.map((header) => {
                const sorted = header.column.getIsSorted();
                const name = flexRender(header.column.columnDef.header, header.getContext());
                return (
                  <th
                    key={header.id}
                    scope="col"
                    className={classOf(header.column.columnDef)}
                    aria-sort={sorted === "asc" ? "ascending" : sorted === "desc" ? "descending" : undefined}
                  >
                    {header.column.getCanSort() ? (
                      <button type="button" onClick={header.column.getToggleSortingHandler()}>
                        {name}
                        <span aria-hidden="true">{sorted === "asc" ? "↑" : sorted === "desc" ? "↓" : ""}</span>
                      </button>
                    ) : (
                      name
                    )}
                  </th>
                );
              })}
            </tr>
          ))}
        </thead>
        <tbody>
          {before > 0 ? <tr style={{ height: before }} aria-hidden="true" /> : null}
          {body.map((row) => (
            <tr
              key={row.id}
              className={`${can ? "openable" : ""} ${chosen?.(row.original) ? "chosen" : ""}`}
              onClick={can ? (event) => isPlain(event.target) && open(row.original) : undefined}
              onKeyDown={can ? (event) => onRowKey(event, () => open(row.original)) : undefined}
              tabIndex={can ? 0 : undefined}
            >
              {cells(row)}
            </tr>
          ))}
          {after > 0 ? <tr style={{ height: after }} aria-hidden="true" /> : null}
        </tbody>
      </table>
    </div>
  );
}

function cells<T>(row: Row<T>): ReactNode {
  return row.getVisibleCells().map((cell) => (
    <td key={cell.id} className={classOf(cell.column.columnDef)}>
      {flexRender(cell.column.columnDef.cell, cell.getContext())}
    </td>
  ));
}

function classOf<T>(column: ColumnDef<T>): string {
  return (column.meta as { className?: string } | undefined)?.className ?? "";
}

/** A click on a link or a button in a row is not one on the row, nor is one that selects text. */
function isPlain(target: EventTarget): boolean {
  return target instanceof Element && target.closest("a, button, input, label") === null && getSelection()?.toString() === "";
}

function onRowKey(event: KeyboardEvent<HTMLTableRowElement>, open: () => void): void {
  const row = event.currentTarget;
  if (event.target !== row) {
    return;
  }
  const step = { ArrowDown: row.nextElementSibling, j: row.nextElementSibling, ArrowUp: row.previousElementSibling, k: row.previousElementSibling };
  const next = step[event.key as keyof typeof step];
  if (event.key === "Enter") {
    open();
  } else if (next instanceof HTMLElement) {
    event.preventDefault();
    next.focus();
  }
}
