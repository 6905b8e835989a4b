import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** RocketMQ by its own client: timer messages sent without waiting for each, read by long polls. */
public final class RocketMq {
    private static final int UNDER_WAY = 2_000;
    private static final int QUEUES = 4;

    private RocketMq() {}

    public static void main(String[] arguments) {
        Job.serve(arguments, job -> switch (job.text("do")) {
            case "topic" -> topic(job);
            case "load" -> load(job);
            default -> read(job);
        });
    }

    private static DefaultMQProducer producer(Job job) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("bench-load");
        producer.setNamesrvAddr(job.text("address"));
        producer.setSendMsgTimeout(30_000);
        producer.setRetryTimesWhenSendAsyncFailed(10);
        producer.start();
        return producer;
    }

    private static String topic(Job job) throws Exception {
        DefaultMQProducer producer = producer(job);
        Job.ready();
        long deadlineMs = System.currentTimeMillis() + 30_000;
        boolean isMade = false;
        while (true) { // a broker that listens may not have told the name server of itself
            try {
                if (!isMade) {
                    producer.createTopic("TBW102", job.text("topic"), QUEUES, Collections.emptyMap());
                    isMade = true;
                }
                if (producer.fetchPublishMessageQueues(job.text("topic")).size() == QUEUES) {
                    return "0";
                }
            } catch (Exception notYet) {
                if (System.currentTimeMillis() > deadlineMs) {
                    throw notYet;
                }
            }
            Thread.sleep(100);
        }
    }

    private static String load(Job job) throws Exception {
        DefaultMQProducer producer = producer(job);
        String topic = job.text("topic");
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(topic);
        Semaphore free = new Semaphore(UNDER_WAY);
        AtomicReference<Throwable> failed = new AtomicReference<>();
        Job.ready();
        Job.Messages messages = job.new Messages();
        int turn = 0;
        while (messages.next()) {
            Message message = new Message(topic, messages.value());
            message.putUserProperty("key", messages.key()); // what it calls a key makes an index
            message.putUserProperty("trace", "4bf92f3577b34da6");
            message.setDeliverTimeMs(messages.dueMs());
            free.acquire();
            producer.send(message, queues.get(turn++ % queues.size()), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    if (result.getSendStatus() != SendStatus.SEND_OK) {
                        failed.set(new IllegalStateException(result.getSendStatus().name()));
                    }
                    free.release();
                }

                @Override
                public void onException(Throwable error) {
                    failed.set(error);
                    free.release();
                }
            });
        }
        free.acquire(UNDER_WAY);
        if (failed.get() != null) {
            throw new IllegalStateException(failed.get());
        }
        return messages.sent();
    }

    private static String read(Job job) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("bench-read");
        consumer.setNamesrvAddr(job.text("address"));
        consumer.setAutoCommit(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET); // a topic that nobody has read
        consumer.setPullBatchSize(1_000);
        consumer.setPullThresholdForQueue(10_000);
        consumer.setPollNameServerInterval(1_000);
        consumer.setPullThreadNums(QUEUES);
        consumer.start();
        consumer.assign(consumer.fetchMessageQueues(job.text("topic")));
        Job.ready();
        Job.Arrivals arrivals = job.new Arrivals();
        while (arrivals.goOn()) {
            for (MessageExt message : consumer.poll(100)) {
                arrivals.take(message.getBody());
            }
        }
        return arrivals.read();
    }
}
