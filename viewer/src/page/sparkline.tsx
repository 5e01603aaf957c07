// A small drawing of numbers over their positions.

interface Props {
  series: ArrayLike<number>[];
  height?: number;
}

const WIDTH = 160;
const MAX_SERIES = 6;

export function Sparkline({series, height = 40}: Props) {
  const shown = series.slice(0, MAX_SERIES).filter(values => values.length);
  let low = Infinity, high = -Infinity;
  for (const values of shown) for (let i = 0; i < values.length; i++) {
    if (!Number.isFinite(values[i])) continue;
    if (values[i] < low) low = values[i];
    if (values[i] > high) high = values[i];
  }
  if (!(high >= low)) return <span class="faint">no numbers</span>;
  const y = (value: number) => (2 + (height - 4) * (high > low ? (high - value) / (high - low) : 0.5)).toFixed(1);
  return (
    <svg class="sparkline" viewBox={`0 0 ${WIDTH} ${height}`} preserveAspectRatio="none" style={{height}}>
      {shown.map((values, n) => {
        const step = Math.max(1, Math.floor(values.length / WIDTH));
        let path = '', command = 'M';
        for (let i = 0; i < values.length; i += step) {
          const isGap = !Number.isFinite(values[i]);
          // Also one among the values that are passed over.
          for (let j = Math.max(0, i - step + 1); j < i; j++) if (!Number.isFinite(values[j])) command = 'M';
          if (!isGap) path += `${command}${(WIDTH * i / Math.max(1, values.length - 1)).toFixed(1)} ${y(values[i])}`;
          // A line to the same point, so that a value between two gaps is visible.
          if (!isGap && command === 'M') path += 'h0';
          command = isGap ? 'M' : 'L';
        }
        return <path key={n} d={path} class={`series-${n % 6}`} />;
      })}
    </svg>
  );
}
