import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.ResponseCode;

/**
 * Sends messages through the official Java client and consumes them:
 * {@code Load NAMESERVER TOPIC WARM_S MEASURE_S IN_FLIGHT BYTES RATE}; a rate of 0 is as fast as it goes.
 *
 * <p>It says {@code load begin} and {@code load end} around what it measures, and then {@code load NAME VALUE} for each
 * figure; other lines are the client's.
 */
public class Load {
    private static final int SAMPLES_MAX = 4_000_000;

    /** Times in nanoseconds, of what falls into the measured part. */
    private static class Times {
        private final long[] found = new long[SAMPLES_MAX];
        private final AtomicInteger count = new AtomicInteger();

        void add(long nanos) {
            int at = count.getAndIncrement();
            if (at < SAMPLES_MAX) {
                found[at] = nanos;
            }
        }

        void print(String name) {
            int size = Math.min(count.get(), SAMPLES_MAX);
            Arrays.sort(found, 0, size);
            System.out.println("load " + name + "_count " + count.get());
            for (int percent : new int[] {50, 99}) {
                long nanos = size == 0 ? 0 : found[(int) Math.min(size - 1, (long) size * percent / 100)];
                System.out.println("load " + name + "_p" + percent + "_ms " + nanos / 1e6);
            }
        }
    }

    private static final Times sent = new Times();
    private static final Times got = new Times();
    private static final AtomicLong produced = new AtomicLong();
    private static final AtomicLong refused = new AtomicLong();
    private static final AtomicLong consumed = new AtomicLong();
    private static final AtomicReference<String> fault = new AtomicReference<>();
    private static volatile boolean measures;

    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Throwable thrown) {
            fault.compareAndSet(null, String.valueOf(thrown));
        }
        if (fault.get() != null) {
            System.out.println("load fault " + fault.get().replace('\n', ' '));
        }
        System.out.flush();
        // The client's threads go on by themselves.
        Runtime.getRuntime().halt(fault.get() == null ? 0 : 1);
    }

    private static void run(String[] arguments) throws Exception {
        String nameserver = arguments[0];
        String topic = arguments[1];
        long warmS = Long.parseLong(arguments[2]);
        long measureS = Long.parseLong(arguments[3]);
        int inFlight = Integer.parseInt(arguments[4]);
        int bytes = Integer.parseInt(arguments[5]);
        double rate = Double.parseDouble(arguments[6]);

        DefaultMQProducer producer = new DefaultMQProducer("P_" + topic);
        producer.setNamesrvAddr(nameserver);
        producer.setInstanceName("producer");
        producer.setSendMsgTimeout(20_000);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        // The topic is there before anybody subscribes to it. A nameserver hears of a new broker after a while.
        long patience = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (produced.get() == 0) {
            try {
                producer.send(new Message(topic, body(bytes)));
                produced.incrementAndGet();
            } catch (MQClientException thrown) {
                if (System.nanoTime() > patience) {
                    throw thrown;
                }
                Thread.sleep(100);
            }
        }

        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("C_" + topic);
        consumer.setNamesrvAddr(nameserver);
        consumer.setInstanceName("consumer");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.nanoTime();
            for (MessageExt message : messages) {
                consumed.incrementAndGet();
                if (measures) {
                    got.add(now - ByteBuffer.wrap(message.getBody()).getLong());
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        patience = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (consumed.get() == 0 && System.nanoTime() < patience) {
            Thread.sleep(10);
        }

        Thread sender = new Thread(() -> send(producer, topic, inFlight, bytes, rate));
        sender.setDaemon(true);
        sender.start();
        Thread.sleep(TimeUnit.SECONDS.toMillis(warmS));
        long begin = System.nanoTime();
        long producedBefore = produced.get();
        long consumedBefore = consumed.get();
        measures = true;
        System.out.println("load begin 0");
        Thread.sleep(TimeUnit.SECONDS.toMillis(measureS));
        measures = false;
        double seconds = (System.nanoTime() - begin) / 1e9;
        long producedIn = produced.get() - producedBefore;
        long consumedIn = consumed.get() - consumedBefore;
        System.out.println("load end 0");

        ended = true;
        sender.join();
        patience = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (consumed.get() < produced.get() && System.nanoTime() < patience) {
            Thread.sleep(10);
        }
        System.out.println("load produced_per_s " + producedIn / seconds);
        System.out.println("load consumed_per_s " + consumedIn / seconds);
        System.out.println("load refused " + refused.get());
        System.out.println("load messages " + producedIn);
        sent.print("send");
        got.print("delivery");
        System.out.println("load missing " + (produced.get() - consumed.get()));
    }

    private static volatile boolean ended;

    private static byte[] body(int bytes) {
        byte[] made = new byte[bytes];
        for (int at = 0; at < bytes; at++) {
            made[at] = (byte) (at * 31 + 7);
        }
        ByteBuffer.wrap(made).putLong(System.nanoTime());
        return made;
    }

    private static void send(DefaultMQProducer producer, String topic, int inFlight, int bytes, double rate) {
        Semaphore free = new Semaphore(inFlight);
        long begin = System.nanoTime();
        long number = 0;
        try {
            while (!ended) {
                if (rate > 0) {
                    long due = begin + (long) (number / rate * 1e9);
                    long left;
                    while ((left = due - System.nanoTime()) > 0) {
                        TimeUnit.NANOSECONDS.sleep(left);
                    }
                }
                number++;
                free.acquire();
                long at = System.nanoTime();
                producer.send(new Message(topic, body(bytes)), new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        if (result.getSendStatus() != SendStatus.SEND_OK) {
                            fault.compareAndSet(null, result.toString());
                        }
                        done();
                    }

                    @Override
                    public void onException(Throwable thrown) {
                        if (thrown instanceof MQBrokerException
                            && ((MQBrokerException) thrown).getResponseCode() == ResponseCode.SYSTEM_BUSY) {
                            // The original refuses what has waited for 200 ms.
                            refused.incrementAndGet();
                        } else {
                            fault.compareAndSet(null, String.valueOf(thrown));
                        }
                        free.release();
                    }

                    private void done() {
                        produced.incrementAndGet();
                        if (measures) {
                            sent.add(System.nanoTime() - at);
                        }
                        free.release();
                    }
                });
            }
            free.acquire(inFlight);
        } catch (Exception thrown) {
            fault.compareAndSet(null, String.valueOf(thrown));
        }
    }
}
