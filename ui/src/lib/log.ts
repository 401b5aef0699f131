/** A log as lines: bytes are added as they come, and only the lines that are shown are decoded. */

const NEWLINE = 10;
const GROWTH = 2;

/**
 * Keeps the bytes of a log and where its lines begin. A million lines are one buffer and one array of numbers, so
 * nothing is copied per line and a line costs four bytes beside its text.
 */
export class LogBuffer {
  private bytes = new Uint8Array(1 << 16);
  private starts = new Uint32Array(1 << 12);
  private size = 0;
  private count = 1;
  private readonly decoder = new TextDecoder();

  get lines(): number {
    // The end of a line that is complete begins no line that can be seen.
    return this.size > 0 && this.bytes[this.size - 1] === NEWLINE ? this.count - 1 : this.size === 0 ? 0 : this.count;
  }

  get length(): number {
    return this.size;
  }

  add(piece: Uint8Array): void {
    this.reserve(piece.length);
    this.bytes.set(piece, this.size);
    for (let at = piece.indexOf(NEWLINE); at >= 0; at = piece.indexOf(NEWLINE, at + 1)) {
      if (this.count === this.starts.length) {
        this.starts = grown(this.starts, new Uint32Array(this.starts.length * GROWTH));
      }
      this.starts[this.count] = this.size + at + 1;
      this.count += 1;
    }
    this.size += piece.length;
  }

  line(index: number): string {
    const start = this.starts[index] ?? 0;
    const end = index + 1 < this.count ? (this.starts[index + 1] ?? this.size) - 1 : this.size;
    return this.decoder.decode(this.bytes.subarray(start, end));
  }

  /** Find lines that contain a text, from one line on; at most `most` of them, looking at `looked` lines. */
  search(text: string, from: number, most: number, looked: number): { found: number[]; next: number } {
    const wanted = text.toLowerCase();
    const found: number[] = [];
    const end = Math.min(this.lines, from + looked);
    let at = from;
    for (; at < end && found.length < most; at += 1) {
      if (this.line(at).toLowerCase().includes(wanted)) {
        found.push(at);
      }
    }
    return { found, next: at };
  }

  private reserve(more: number): void {
    if (this.size + more > this.bytes.length) {
      const room = Math.max(this.bytes.length * GROWTH, this.size + more);
      this.bytes = grown(this.bytes, new Uint8Array(room));
    }
  }
}

function grown<T extends Uint8Array | Uint32Array>(from: T, into: T): T {
  into.set(from);
  return into;
}
