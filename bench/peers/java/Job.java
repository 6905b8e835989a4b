import java.io.IOException;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;

/**
 * A job of the benchmark in Java: `name=value` arguments in, "ready" and a line of JSON out. The same as
 * bench/peers/job.py, for peers whose own clients are in Java.
 */
final class Job {
    static final int VALUE_BYTES = 300;
    private static final int DATED_BYTES = 13 + 12;
    private static final byte[] POOL = new byte[1 << 20];
    private static final PrintStream ANSWERS = System.out;

    static {
        new Random(1).nextBytes(POOL);
        System.setOut(System.err); // what a client logs is no answer
    }

    interface Work {
        /** Does it, and gives the line of JSON. */
        String run(Job job) throws Exception;
    }

    private final Map<String, String> arguments = new HashMap<>();

    private Job(String[] given) {
        for (String one : given) {
            int at = one.indexOf('=');
            arguments.put(one.substring(0, at), one.substring(at + 1));
        }
    }

    /** The process's side. It ends with the benchmark, whose end closes its stdin. */
    static void serve(String[] given, Work work) {
        Thread parent = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                }
            } catch (IOException gone) {
            }
            Runtime.getRuntime().halt(3);
        });
        parent.setDaemon(true);
        parent.start();
        String said;
        try {
            said = work.run(new Job(given));
        } catch (Throwable error) {
            said = "failed: " + String.valueOf(error).replaceAll("\\s+", " ");
        }
        say(said);
        Runtime.getRuntime().halt(0);
    }

    String text(String name) {
        String value = arguments.get(name);
        if (value == null) {
            throw new IllegalArgumentException("no " + name);
        }
        return value;
    }

    long number(String name) {
        return Long.parseLong(text(name));
    }

    static void ready() {
        say("ready");
    }

    private static void say(String line) {
        ANSWERS.println(line);
        ANSWERS.flush();
    }

    /** The messages to send: each one's number, due time and value, at the rate that is asked for. */
    final class Messages {
        private final long count = number("count");
        private final long rate = number("rate");
        private final long leadMs = number("lead_ms");
        private final long firstDueMs = number("first_due_ms");
        private final long spanMs = number("span_ms");
        private final long beginNs = System.nanoTime();
        private long next = -1;
        private long dueMs;

        /** Goes to the next one, when it is its time. */
        boolean next() throws InterruptedException {
            if (++next >= count) {
                return false;
            }
            if (rate == 0) {
                dueMs = firstDueMs + next * spanMs / count;
                return true;
            }
            while (next > (System.nanoTime() - beginNs) / 1e9 * rate) {
                Thread.sleep(1);
            }
            dueMs = System.currentTimeMillis() + leadMs;
            return true;
        }

        String key() {
            return String.format(Locale.ROOT, "%08d", next % 100_000_000);
        }

        long dueMs() {
            return dueMs;
        }

        byte[] value() {
            byte[] value = new byte[VALUE_BYTES];
            int begin = (int) (next * 7_919 % (POOL.length - VALUE_BYTES));
            System.arraycopy(POOL, begin, value, 0, VALUE_BYTES);
            digits(value, 0, 13, dueMs);
            digits(value, 13, DATED_BYTES, next);
            return value;
        }

        /** The result of having sent them all. */
        String sent() {
            return String.valueOf((System.nanoTime() - beginNs) / 1e9);
        }
    }

    private static void digits(byte[] value, int from, int to, long number) {
        for (int at = to - 1; at >= from; at--) {
            value[at] = (byte) ('0' + number % 10);
            number /= 10;
        }
    }

    private static long digits(byte[] value, int from, int to) {
        long number = 0;
        for (int at = from; at < to; at++) {
            number = number * 10 + value[at] - '0';
        }
        return number;
    }

    /** What comes. Of one thread at a time. */
    final class Arrivals {
        private final long count = number("count");
        private final boolean check = number("check") == 1;
        private final long unjudged = number("unjudged");
        private final long quietMs = number("quiet_ms");
        private final long[] lateUs = new long[check ? (int) count : 0];
        private final BitSet seen = new BitSet();
        private final List<String> gaps = new ArrayList<>();
        private int lates;
        private long came;
        private long distinct;
        private long early;
        private double firstMs;
        private double lastMs;
        private long lookedMs = System.currentTimeMillis();

        /** Whether there is more to wait for. */
        synchronized boolean goOn() {
            return distinct < count && System.currentTimeMillis() - lookedMs < quietMs;
        }

        synchronized void take(byte[] value) {
            java.time.Instant now = java.time.Instant.now();
            double atMs = now.getEpochSecond() * 1e3 + now.getNano() / 1e6;
            if (came == 0) {
                firstMs = atMs;
            } else if (atMs - lastMs > GAP_MS) {
                gaps.add(gap(atMs));
            }
            came++;
            lastMs = atMs;
            lookedMs = (long) atMs;
            if (!check) {
                distinct++;
                return;
            }
            int number = (int) digits(value, 13, DATED_BYTES);
            if (seen.get(number)) {
                return;
            }
            seen.set(number);
            distinct++;
            if (number < unjudged) {
                return;
            }
            long late = (long) ((atMs - digits(value, 0, 13)) * 1000);
            lateUs[lates++] = late;
            if (late < 0) {
                early++;
            }
        }

        /** From the last one until then. */
        private String gap(double atMs) {
            return String.format(Locale.ROOT, "[%.1f,%.1f]", lastMs, atMs - lastMs);
        }

        synchronized String read() {
            if (distinct < count && came > 0) {
                gaps.add(gap(System.currentTimeMillis()));
            }
            Arrays.sort(lateUs, 0, lates);
            return String.format(
                Locale.ROOT, "{\"came\":%d,\"distinct\":%d,\"early\":%d,\"first_ms\":%.1f,\"last_ms\":%.1f,\"p50_ms\":%.3f,"
                    + "\"p99_ms\":%.3f,\"max_ms\":%.3f,\"gaps\":[%s]}",
                came, distinct, early, firstMs, lastMs, late(0.5), late(0.99), late(1), String.join(",", gaps));
        }

        private double late(double share) {
            return lates == 0 ? 0 : lateUs[(int) Math.ceil(share * lates) - 1] / 1000.0;
        }
    }

    private static final double GAP_MS = 200;
}
