import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.FileWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.locks.LockSupport;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends messages one after the other whatever becomes of the brokers, and consumes them, until a line comes on standard
 * input: {@code Steady NAMESERVERS BROKER TOPIC QUEUES THREADS BYTES RATE FOLDER}; a rate of 0 is as fast as it goes.
 *
 * <p>Each thread sends its messages to one queue: number n again and again until it is acknowledged, then n + 1. The
 * file {@code acks} of the folder gets a line for each acknowledgment, {@code THREAD NUMBER ATTEMPT MILLISECONDS}, and
 * {@code got} one for each message that a consumer is given, {@code THREAD NUMBER ATTEMPT QUEUE}, or {@code bad} and a
 * reason. After the first line of input it sends no more and says {@code steady ended}; it ends with the second one.
 */
public class Steady {
    private static final int TIMEOUT_MS = 1_000;
    private static final int POLL_MS = 300;
    private static final long PAUSE_NS = 20_000_000;

    private static volatile boolean ended;
    private static final TreeMap<String, Integer> failures = new TreeMap<>();

    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Throwable thrown) {
            System.out.println("steady fault " + String.valueOf(thrown).replace('\n', ' '));
        }
        System.out.flush();
        // The client's threads go on by themselves.
        Runtime.getRuntime().halt(0);
    }

    private static void run(String[] arguments) throws Exception {
        String nameservers = arguments[0];
        String broker = arguments[1];
        String topic = arguments[2];
        int queues = Integer.parseInt(arguments[3]);
        int count = Integer.parseInt(arguments[4]);
        int bytes = Integer.parseInt(arguments[5]);
        double rate = Double.parseDouble(arguments[6]);
        PrintWriter acks = open(arguments[7] + "/acks");
        PrintWriter got = open(arguments[7] + "/got");

        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (int at = 0; at < 2; at++) {
            consumers.add(consumer(nameservers, topic, at, got));
        }
        DefaultMQProducer producer = new DefaultMQProducer("P_" + topic);
        producer.setNamesrvAddr(nameservers);
        producer.setInstanceName("producer");
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setPollNameServerInterval(POLL_MS);
        producer.start();
        List<Thread> threads = new ArrayList<>();
        for (int at = 0; at < count; at++) {
            int thread = at;
            MessageQueue queue = new MessageQueue(topic, broker, thread % queues);
            long gap = rate > 0 ? (long) (1e9 * count / rate) : 0;
            threads.add(new Thread(() -> send(producer, queue, thread, bytes, gap, acks)));
        }
        for (Thread thread : threads) {
            thread.start();
        }
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        input.readLine();
        ended = true;
        for (Thread thread : threads) {
            thread.join();
        }
        synchronized (failures) {
            failures.forEach((what, times) -> System.out.println("steady failed " + times + " " + what));
        }
        System.out.println("steady ended");
        System.out.flush();
        input.readLine();
        for (DefaultMQPushConsumer consumer : consumers) {
            consumer.shutdown();
        }
    }

    private static PrintWriter open(String path) throws IOException {
        return new PrintWriter(new BufferedWriter(new FileWriter(path)));
    }

    private static void write(PrintWriter writer, String line) {
        synchronized (writer) {
            writer.println(line);
            writer.flush();
        }
    }

    private static DefaultMQPushConsumer consumer(String nameservers, String topic, int at, PrintWriter got)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("C_" + topic);
        consumer.setNamesrvAddr(nameservers);
        consumer.setInstanceName("consumer" + at);
        consumer.setPollNameServerInterval(POLL_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                write(got, read(message.getBody()) + " " + message.getQueueId());
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static void send(
        DefaultMQProducer producer, MessageQueue queue, int thread, int bytes, long gap, PrintWriter acks) {
        int attempt = 0;
        long due = System.nanoTime();
        for (long number = 0; !ended; ) {
            String what;
            try {
                Message message = new Message(queue.getTopic(), "tag", body(thread, number, attempt, bytes));
                SendResult result = producer.send(message, queue, TIMEOUT_MS);
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    write(acks, thread + " " + number + " " + attempt + " " + System.currentTimeMillis());
                    number++;
                    attempt = 0;
                    due += gap;
                    LockSupport.parkNanos(due - System.nanoTime());
                    continue;
                }
                what = result.getSendStatus().toString();
            } catch (Exception thrown) {
                what = thrown.getClass().getSimpleName() + " " + String.valueOf(thrown.getMessage()).split("[,:<\n]")[0];
            }
            attempt++;
            due = System.nanoTime();
            synchronized (failures) {
                failures.merge(what.replaceAll("[0-9.]+", "#"), 1, Integer::sum);
            }
            LockSupport.parkNanos(PAUSE_NS);
        }
    }

    /** A text that names the message, filling that depends on it, and a checksum of both. */
    private static byte[] body(int thread, long number, int attempt, int bytes) {
        byte[] name = (thread + " " + number + " " + attempt + "\n").getBytes(StandardCharsets.US_ASCII);
        Random random = new Random((thread * 1_000_003L + number) * 1_000_003L + attempt);
        byte[] filling = new byte[bytes / 2 + random.nextInt(bytes + 1)];
        random.nextBytes(filling);
        CRC32 checksum = new CRC32();
        checksum.update(name);
        checksum.update(filling);
        return ByteBuffer.allocate(name.length + filling.length + 4)
            .put(name).put(filling).putInt((int) checksum.getValue()).array();
    }

    private static String read(byte[] body) {
        CRC32 checksum = new CRC32();
        checksum.update(body, 0, body.length - 4);
        if ((int) checksum.getValue() != ByteBuffer.wrap(body, body.length - 4, 4).getInt()) {
            return "bad checksum";
        }
        int end = 0;
        while (body[end] != '\n') {
            end++;
        }
        return new String(body, 0, end, StandardCharsets.US_ASCII);
    }
}
