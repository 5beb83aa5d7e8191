"""What the page of a validation adds to the style sheet."""

MORE_STYLE = """
:root {
  --l0: #eef1f0; --l1: #d6ecdf; --l2: #bfe0cd; --l3: #dbe5ab; --l4: #f2df98;
  --x1: #f6bd92; --x2: #e98a6f; --x3: #b3261e; --on-x3: #ffffff; --missing: #b4670a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --l0: #242a30; --l1: #1d382b; --l2: #22503a; --l3: #4a5526; --l4: #665420;
    --x1: #7d431f; --x2: #9c3826; --x3: #d9483b; --on-x3: #ffffff; --missing: #e0a04a;
  }
}
.verdict { font-size: 18px; line-height: 1.4; margin: 0 0 20px; overflow-wrap: anywhere; }
.verdict b { margin-right: 6px; }
h1 + .verdict { margin-top: -8px; }
h3 { font-size: 14px; line-height: 1.45; font-weight: 600; margin: 20px 0 8px; overflow-wrap: anywhere; }
h3 span { color: var(--soft); font-weight: 400; }
section > p { margin: 0 0 12px; max-width: 76ch; }
.bad { color: var(--bad); }
.scroll { overflow-x: auto; margin: 0 0 12px; }
.grid { width: auto; table-layout: auto; border-collapse: separate; border-spacing: 2px; font-size: 12px; }
.grid thead { display: table-header-group; }
.grid tr, .grid tbody tr:last-child { display: table-row; }
.grid th { padding: 2px 8px 2px 0; border: 0; font-size: 12px; white-space: nowrap; vertical-align: middle; }
.grid thead th { vertical-align: bottom; }
.grid thead th + th { padding: 2px 2px; text-align: center; white-space: normal; max-width: 72px; line-height: 1.2; }
.grid tbody tr td, .grid tbody tr:last-child td {
  display: table-cell; width: 72px; min-width: 44px; padding: 3px 2px 2px; border: 1px solid transparent;
  border-radius: 3px; text-align: center; white-space: nowrap; overflow-wrap: normal;
  font-variant-numeric: tabular-nums;
}
.grid tbody tr td::before { content: none; }
.grid b { display: block; font-weight: 500; line-height: 1.3; }
.grid .below { display: block; font-size: 10px; line-height: 1.2; color: var(--soft); }
.grid i { font-style: normal; margin: 0 3px; }
.grid i.wrong { color: var(--bad); font-weight: 700; }
.grid tbody tr td.none { border: 1px dashed var(--line); }
.grid tbody tr td.wrong { border-color: var(--bad); }
.grid td.wrong b { font-weight: 700; }
.grid .x1 .below, .grid .x2 .below { color: inherit; }
.grid .x3, .grid .x3 .below, .grid .x3 i.wrong { color: var(--on-x3); }
.swatch { display: inline-block; flex: none; width: 14px; height: 14px; border-radius: 3px; }
.l0 { background: var(--l0); } .l1 { background: var(--l1); } .l2 { background: var(--l2); }
.l3 { background: var(--l3); } .l4 { background: var(--l4); } .x1 { background: var(--x1); }
.x2 { background: var(--x2); } .x3 { background: var(--x3); }
.panels { gap: 12px 24px; }
section > .legend { color: var(--soft); font-size: 13px; margin: 0 0 12px; gap: 4px 18px; }
.legend svg { flex: none; }
.extra { fill: var(--x3); } .extra-mark { fill: var(--on-x3); }
.missing, .missing-mark { fill: var(--missing); }
.faint { fill: var(--attends); opacity: 0.6; } .unknown { fill: var(--soft); opacity: 0.45; }
svg text.pad { fill: var(--missing); font-weight: 700; } b.pad { color: var(--missing); font-family: monospace; }
.notes { color: var(--soft); margin: 12px 0 0; padding-left: 20px; }
.figures-run th:nth-child(1) { width: 30%; } .figures-run th:nth-child(2) { width: 14%; }
.figures-run th:nth-child(3) { width: 10%; } .figures-run th:nth-child(4) { width: 11%; }
.contracts th:nth-child(1) { width: 30%; } .contracts th:nth-child(2) { width: 12%; }
.contracts th:nth-child(3) { width: 11%; }
details table { margin-top: 8px; }
@media (max-width: 640px) {
  .verdict { font-size: 16px; }
  .facts { grid-template-columns: minmax(0, 1fr); }
  .facts dd { margin-bottom: 6px; }
  .grid { font-size: 10px; border-spacing: 1px; }
  .grid th, .grid thead th + th { font-size: 10px; padding-right: 3px; }
  .grid tbody tr td, .grid tbody tr:last-child td { width: auto; min-width: 32px; padding: 3px 0 2px; }
  .grid i { margin: 0 1px; }
}
"""
