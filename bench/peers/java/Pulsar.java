import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionType;

/** Pulsar by its own client: messages with deliverAt, read by a shared subscription, which alone delays. */
public final class Pulsar {
    private static final int UNDER_WAY = 4_000;

    private Pulsar() {}

    public static void main(String[] arguments) {
        Job.serve(arguments, job -> job.text("do").equals("load") ? load(job) : read(job));
    }

    private static PulsarClient client(Job job) throws Exception {
        return PulsarClient.builder()
            .serviceUrl("pulsar://" + job.text("address"))
            .startingBackoffInterval(50, TimeUnit.MILLISECONDS)
            .maxBackoffInterval(200, TimeUnit.MILLISECONDS)
            .build();
    }

    private static String load(Job job) throws Exception {
        Producer<byte[]> producer = client(job).newProducer()
            .topic(job.text("topic"))
            .compressionType(CompressionType.NONE)
            .maxPendingMessages(UNDER_WAY)
            .blockIfQueueFull(true)
            .sendTimeout(0, TimeUnit.SECONDS)
            .create();
        Semaphore free = new Semaphore(UNDER_WAY);
        AtomicReference<Throwable> failed = new AtomicReference<>();
        Job.ready();
        Job.Messages messages = job.new Messages();
        while (messages.next()) {
            free.acquire();
            producer.newMessage()
                .key(messages.key())
                .property("trace", "4bf92f3577b34da6")
                .deliverAt(messages.dueMs())
                .value(messages.value())
                .sendAsync()
                .whenComplete((id, error) -> {
                    if (error != null) {
                        failed.set(error);
                    }
                    free.release();
                });
        }
        free.acquire(UNDER_WAY);
        if (failed.get() != null) {
            throw new IllegalStateException(failed.get());
        }
        return messages.sent();
    }

    private static String read(Job job) throws Exception {
        Consumer<byte[]> consumer = client(job).newConsumer()
            .topic(job.text("topic"))
            .subscriptionName("bench")
            .subscriptionType(SubscriptionType.Shared)
            .receiverQueueSize(5_000)
            .maxTotalReceiverQueueSizeAcrossPartitions(50_000)
            .subscribe();
        Job.ready();
        Job.Arrivals arrivals = job.new Arrivals();
        while (arrivals.goOn()) {
            Message<byte[]> message = consumer.receive(100, TimeUnit.MILLISECONDS);
            if (message != null) {
                arrivals.take(message.getValue());
                consumer.acknowledgeAsync(message);
            }
        }
        return arrivals.read();
    }
}
