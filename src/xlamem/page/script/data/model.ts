/**
 * The report's data, as `xlamem report -o FILE.json` writes it and the page embeds it.
 *
 * `report.schema.json` is the same contract as a JSON schema, and docs/report.md describes it. Sizes are in bytes and
 * times are schedule steps. A row number refers to a row of the columns that the comment names; -1 means none.
 */

/** Integers below 2^53 in magnitude. See docs/report.md for `encoding`. */
export interface IntColumn {
  type: "int";
  length: number;
  /** Bytes per integer. */
  width: number;
  /** Whether the integers are the differences of consecutive values, the first one that of 0. */
  delta: boolean;
  /** base64 of zlib of `width` planes: the lowest bytes of all zigzag-encoded integers, then the next bytes, … */
  data: string;
}

/** Texts; `data` is base64 of zlib of a JSON array of strings. */
export interface TextColumn {
  type: "text";
  length: number;
  data: string;
}

export interface Report {
  format: "xlamem.report";
  version: 1;
  /** Version of xlamem. */
  tool: string;
  kind: "program" | "comparison" | "directory";
  title: string;
  /** One program; A and B; or the programs of a directory that this file contains. */
  programs: Program[];
  difference: Difference | null;
  directory: Directory | null;
}

export interface Program {
  name: string;
  path: string;
  module_id: number | null;
  platform: string | null;
  target: string | null;
  /** Number of steps, which is the schedule length + 1; null without live ranges. */
  steps: number | null;
  complete: boolean;
  understood: boolean;
  consistent: boolean;
  /** Sentences about files that are truncated, not understood or inconsistent. */
  problems: string[];
  /** What this file leaves out, as sentences. */
  folded: string[];
  verdict: Verdict;
  /** Main memory first, then by peak. */
  spaces: Space[];
  /** device_total first, without a memory space that is all of it. */
  bill: Account[];
  phases: Phases;
  allocations: Allocations;
  instructions: Instructions;
  buffers: Buffers;
  uses: Uses;
  aliases: Aliases;
  scopes: Scopes;
  /** Instruction that runs at each step: a row of instructions, -1 if it is not printed. */
  schedule: IntColumn;
  advice: Advice[];
  explain: Explanation[];
  diagnostics: Diagnostic[];
  /** Number of diagnostics of the dump; `diagnostics` has the first of them. */
  n_diagnostics: number;
}

/** What the program needs, in words. */
export interface Verdict {
  /** device_total; null if it is not known. */
  must_fit: number | null;
  /** Its terms by memory space. */
  terms: { memory_space: string; bytes: number }[];
  device: Device | null;
  /** null if it is not known, or if no device was given. */
  fits: boolean | null;
  /** Why that is not known, or, without a device, why must_fit cannot be trusted; else empty. */
  reason: string;
  /** One sentence: what must fit, and whether it does. */
  headline: string;
  /** Sentences: when the peak is, in which phase and layer, and which part of the bill decides. */
  decided_by: string[];
  /** The first thing to do, or that nothing is known to help. */
  first_step: string;
}

export interface Device {
  /** Name of the device, or "capacity". */
  name: string;
  capacity: number;
  resident: number;
  fraction: number;
  /** capacity x fraction - resident. */
  available: number;
  /** Where the capacity comes from. */
  note: string;
}

export interface Space {
  memory_space: string;
  color: number;
  page: number;
  in_device_memory: boolean;
  allocated: number;
  reserved: number;
  /** null without live ranges. */
  peak: number | null;
  first_step: number | null;
  last_step: number | null;
  n_plateaus: number | null;
  /** The highest first. */
  plateaus: { first_step: number; last_step: number; bytes: number }[];
  /**
   * Bytes in use at the peak by category: parameter, donated, live_out, constant, temp. Without live ranges, the sizes
   * of the allocations.
   */
  categories: Record<string, number>;
  /** Bytes in use at every step; empty without live ranges. All but the temporaries are in use at every step. */
  usage: IntColumn;
}

export interface Account {
  /** Memory space, or device_total. */
  account: string;
  page: number;
  step: number | null;
  total: number;
  in_use: number;
  /** Lines of the bill in order, in use first; they add up to total. */
  lines: BillLine[];
}

export interface BillLine {
  line: string;
  label: string;
  bytes: number;
  in_use: boolean;
  /** Sentence that explains the line. */
  note: string;
  /** Rows of the table `bills`, which add up to bytes. */
  parts: { part: string | null; label: string; kind: string | null; n: number | null; bytes: number; note: string }[];
}

/** Consecutive steps of the same phase, without steps whose phase is not known. */
export interface Phases {
  names: string[];
  phase: IntColumn;
  first_step: IntColumn;
  last_step: IntColumn;
}

/** Allocations except thread-local ones. */
export interface Allocations {
  allocation: IntColumn;
  /** Row of spaces. */
  space: IntColumn;
  size: IntColumn;
  /** Index of category_names. */
  category: IntColumn;
  category_names: string[];
  /** What it is for people: `params['w']`, or `arena 12`. */
  label: TextColumn;
}

/** Instructions that define or read buffers, or run at a step. Names that are left out are empty. */
export interface Instructions {
  name: TextColumn;
  opcode: IntColumn;
  opcode_names: string[];
}

/** Values in these allocations, by first step; those without live ranges last. */
export interface Buffers {
  value_id: IntColumn;
  /** Row of instructions. */
  instruction: IntColumn;
  /** Index of shape_index_names. */
  shape_index: IntColumn;
  shape_index_names: TextColumn;
  /** Row of allocations. */
  allocation: IntColumn;
  offset: IntColumn;
  size: IntColumn;
  /** Bytes without padding; -1 if not known. */
  unpadded: IntColumn;
  /** First and last step of the closed live range; -1 without one. */
  start: IntColumn;
  end: IntColumn;
  shape: IntColumn;
  shape_names: TextColumn;
  op_name: IntColumn;
  op_name_names: TextColumn;
  /** `file:line`. */
  source: IntColumn;
  source_names: TextColumn;
  /** Row of scopes. */
  scope: IntColumn;
  origin: IntColumn;
  origin_names: string[];
  /** Row of instructions. */
  origin_instruction: IntColumn;
  category: IntColumn;
  category_names: string[];
  phase: IntColumn;
  phase_names: string[];
  kind: IntColumn;
  kind_names: string[];
  /** `layers_*`. */
  layer: IntColumn;
  layer_names: string[];
  /** -1 without a layer. */
  layer_index: IntColumn;
  iterations: IntColumn;
  /**
   * By how much the peak of its space would be lower without it and what is updated in its place, at most; -1 if it is
   * not known. In a parameter, a constant or an output it is known for one value only, which stands for the entire
   * allocation.
   */
  saving: IntColumn;
}

/** Instructions that read a buffer, by buffer and step. */
export interface Uses {
  /** Row of buffers. */
  buffer: IntColumn;
  /** Row of instructions. */
  instruction: IntColumn;
  /** -1 if it is not in the schedule. */
  step: IntColumn;
}

/** Other positions of the same bytes, by buffer. */
export interface Aliases {
  buffer: IntColumn;
  instruction: IntColumn;
  shape_index: IntColumn;
  shape_index_names: TextColumn;
}

/** Tree of scopes with layers folded. Row 0 is the root; a parent comes before its children. */
export interface Scopes {
  name: TextColumn;
  parent: IntColumn;
  /** Whether temporaries and outputs are arranged by function, because their op_names have no modules. */
  functions: boolean;
}

export interface Advice {
  kind: string;
  action: string;
  subject: string;
  lower: number;
  upper: number;
  bytes: number;
  n_buffers: number;
  confidence: string;
  source: string;
  in_plan: boolean | null;
  /** Row of buffers of the largest buffer it concerns. */
  buffer: number;
}

export interface Explanation {
  name: string;
  memory_space: string | null;
  bytes: number | null;
  step: number | null;
  definition: string;
  difference: number | null;
  basis: string;
  causes: { cause: string; bytes: number }[];
}

export interface Diagnostic {
  severity: string;
  code: string;
  file: string;
  line: number | null;
  offset: number | null;
  wanted: string;
  excerpt: string;
}

/** What changed from programs[0], A, to programs[1], B. */
export interface Difference {
  verdict: string;
  same: boolean;
  /** Why the difference is not known; empty if it is. */
  doubt: string;
  /** device_total first; each account has two waterfalls. */
  accounts: AccountDifference[];
  edits: { text: string; kind: string; evidence: string; change: number; n: number }[];
  /** Pairs of matched steps, both ascending. */
  steps: { a: IntColumn; b: IntColumn };
  /** Pairs of rows of buffers that match, -1 for one that this file leaves out; other buffers are gone or new. */
  buffers: { a: IntColumn; b: IntColumn };
}

export interface AccountDifference {
  account: string;
  /** What must fit: the lines of the bill that changed. */
  reserved: Waterfall;
  /** What is in use at the peak: groups of buffers. */
  peak: Waterfall;
  /** The buffers of the rows of peak: rows of the buffers of A and B, -1 on the side where there is none. */
  members: { row: IntColumn; a: IntColumn; b: IntColumn };
  /** The steps that are compared. */
  step_a: number;
  step_b: number;
}

/** a + the changes = b. */
export interface Waterfall {
  a: number;
  b: number;
  /** `mark` is the cause in a word; `n` is the number of buffers, 0 for lines of a bill. */
  rows: { label: string; detail: string; mark: string; change: number; n: number; source: string }[];
}

export interface Directory {
  /** Largest first. */
  rows: {
    name: string;
    path: string;
    platform: string | null;
    steps: number | null;
    must_fit: number | null;
    peak: number | null;
    available: number | null;
    fits: boolean | null;
    complete: boolean;
    occurrences: number;
    /** Row of programs; -1 if its page is a file of its own or was left out. */
    program: number;
    /** Relative path of its page; empty without one. */
    file: string;
  }[];
  failed: { path: string; error: string }[];
  /** Sentences about what was left out. */
  folded: string[];
}
