// Where brokers stand in the drawing: on the circle of their ids, at the corners of a hypercube, in a tree of regions.

export const SIZE = { width: 680, height: 620 };
export const CENTRE = { x: 340, y: 310 };
const RADIUS = 228;

const towards = (angle, radius) => ({ x: CENTRE.x + radius * Math.cos(angle), y: CENTRE.y + radius * Math.sin(angle) });

// Ids are drawn by chance and may lie close together: they are moved apart as far as it takes to see them, never past
// each other. Brokers come sorted by place.
export function spread(places) {
  const gap = (0.72 / places.length) * (places.length > 1 ? 1 : 0);
  const moved = [...places];
  for (let round = 0; round < 60; round += 1) {
    let isDone = true;
    for (let at = 0; at < moved.length; at += 1) {
      const next = (at + 1) % moved.length;
      const apart = moved[next] - moved[at] + (next === 0 ? 1 : 0);
      if (moved.length > 1 && apart < gap - 1e-6) {
        moved[at] -= (gap - apart) / 2;
        moved[next] += (gap - apart) / 2;
        isDone = false;
      }
    }
    if (isDone) break;
  }
  return moved;
}

export function ring(brokers) {
  const places = spread(brokers.map((each) => each.place));
  const at = new Map();
  brokers.forEach((each, index) => {
    const angle = (places[index] - 0.25) * 2 * Math.PI;
    at.set(each.id, { ...towards(angle, RADIUS), outward: angle, angle });
  });
  return { kind: "ring", at, radius: RADIUS };
}

// A region is the last bits of the ids in it. Each bit has a direction of its own, so that regions that differ in one bit
// lie apart by the same step everywhere; a bit that a shorter code does not have is halfway. Brokers that host no region
// stand around them, in the order of their ids.
export function cube(brokers) {
  const hosts = brokers.filter((each) => each.regions?.length);
  const others = brokers.filter((each) => !each.regions?.length);
  const depth = Math.max(1, ...hosts.map((each) => each.regions[0].length));
  const steps = Array.from({ length: depth }, (_, bit) => {
    const angle = 0.3 + (bit * Math.PI) / depth + (bit % 2 ? 0.12 : 0);
    const length = 1 / (1 + 0.28 * bit);
    return { x: Math.cos(angle) * length, y: -Math.sin(angle) * length };
  });
  const corners = hosts.map(({ id, regions: [code] }) => {
    const point = { id, x: 0, y: 0 };
    steps.forEach((step, bit) => {
      const side = bit < code.length ? Number(code[code.length - 1 - bit]) - 0.5 : 0;
      point.x += step.x * side;
      point.y += step.y * side;
    });
    return point;
  });
  const reach = (axis) => Math.max(0.01, ...corners.map((each) => Math.abs(each[axis])));
  const room = others.length ? { x: 120, y: 110 } : { x: 265, y: 232 };
  const scale = Math.min(room.x / reach("x"), room.y / reach("y"));
  const at = new Map();
  for (const each of corners) {
    const x = CENTRE.x + each.x * scale;
    const y = CENTRE.y + each.y * scale;
    const isMiddle = Math.hypot(x - CENTRE.x, y - CENTRE.y) < 30;
    at.set(each.id, { x, y, outward: isMiddle ? Math.PI / 2 : Math.atan2(y - CENTRE.y, x - CENTRE.x), angle: null });
  }
  if (others.length) for (const [id, point] of ring(others).at) at.set(id, point);
  return { kind: "cube", at, radius: null };
}

// Regions by code: leaves side by side, a parent above the middle of its children.
export function regions(tree) {
  const byCode = new Map(tree.map((each) => [each.code, { ...each, below: [] }]));
  const roots = [];
  for (const each of [...byCode.values()].sort((a, b) => a.code.length - b.code.length || (a.code < b.code ? -1 : 1))) {
    let above = null;
    for (let length = each.code.length - 1; length >= 0 && above === null; length -= 1)
      above = byCode.get(each.code.slice(0, length)) ?? null;
    if (above) above.below.push(each);
    else roots.push(each);
  }
  let leaves = 0;
  let depth = 0;
  const place = (each, level) => {
    depth = Math.max(depth, level);
    each.level = level;
    each.below.forEach((child) => place(child, level + 1));
    each.column = each.below.length ? (each.below[0].column + each.below.at(-1).column) / 2 : leaves++;
  };
  roots.forEach((each) => place(each, 0));
  return { all: [...byCode.values()], leaves: Math.max(1, leaves), depth };
}

// The way from one broker to another: bent towards the middle, and to opposite sides for opposite directions.
export function way(from, to, bend = 0.55) {
  const middle = { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 };
  const across = { x: to.y - from.y, y: from.x - to.x };
  const length = Math.hypot(across.x, across.y) || 1;
  const pull = bend * Math.min(1, length / 320);
  const control = {
    x: middle.x + (CENTRE.x - middle.x) * pull + (across.x / length) * 16,
    y: middle.y + (CENTRE.y - middle.y) * pull + (across.y / length) * 16,
  };
  return `M${from.x.toFixed(1)} ${from.y.toFixed(1)}Q${control.x.toFixed(1)} ${control.y.toFixed(1)} ${to.x.toFixed(1)} ${to.y.toFixed(1)}`;
}

export function arc(from, to, radius) {
  const turn = (((to.angle - from.angle) % (2 * Math.PI)) + 2 * Math.PI) % (2 * Math.PI);
  return `M${from.x.toFixed(1)} ${from.y.toFixed(1)}A${radius} ${radius} 0 ${turn > Math.PI ? 1 : 0} 1 ${to.x.toFixed(1)} ${to.y.toFixed(1)}`;
}
