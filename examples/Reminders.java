import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Schedules two reminders and cancels one of them, with the plain Kafka client: a request is a record with headers.
 *
 * <p>java -cp 'libs/*' Reminders.java localhost:9092 delay reminders
 */
public class Reminders {
    public static void main(String[] arguments) throws Exception {
        Properties config = new Properties();
        config.setProperty("bootstrap.servers", arguments[0]);
        config.setProperty("acks", "all");
        config.setProperty("enable.idempotence", "true");
        String buffer = arguments[1] + ".buffer";
        String target = arguments[2];

        KafkaProducer<String, String> producer =
                new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        try {
            send(producer, schedule(buffer, target, "meeting-1", "2s", "The meeting begins in 15 minutes"));
            send(producer, schedule(buffer, target, "meeting-2", "1h", "This one is called off"));
            send(producer, cancel(buffer, "meeting-2"));
        } finally {
            producer.close();
        }
    }

    /** The record's key is the id: the client's own partitioner then puts it where the service looks for it. */
    static ProducerRecord<String, String> schedule(
            String buffer, String target, String id, String after, String text) {
        ProducerRecord<String, String> request = new ProducerRecord<>(buffer, id, text);
        header(request, "delay-target-topic", target);
        header(request, "delay-target-key", "customer-7");
        header(request, "delay-after", after);
        header(request, "delay-id", id);
        header(request, "language", "en"); // one of your own: delivered as it is
        return request;
    }

    static ProducerRecord<String, String> cancel(String buffer, String id) {
        ProducerRecord<String, String> request = new ProducerRecord<>(buffer, id, null);
        header(request, "delay-op", "cancel");
        header(request, "delay-id", id);
        return request;
    }

    static void header(ProducerRecord<String, String> request, String name, String value) {
        request.headers().add(name, value.getBytes(StandardCharsets.UTF_8));
    }

    static void send(KafkaProducer<String, String> producer, ProducerRecord<String, String> request) throws Exception {
        System.out.println(producer.send(request).get()); // topic-partition@offset
    }
}
